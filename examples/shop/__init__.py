"""A shop on Fairlane: orders, billing, e-mail, a supplier that is polled, and a report on a schedule."""
