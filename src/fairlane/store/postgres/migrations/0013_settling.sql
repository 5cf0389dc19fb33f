-- Functions changed: `claim` looks for what is due again only where it is, `settle` cuts a claim in one step.
COMMENT ON TABLE fairlane.claims IS 'Messages of unordered queues that are in consumers'' hands.';
