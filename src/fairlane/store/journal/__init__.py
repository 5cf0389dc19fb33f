"""The journal: one file of the broker, to which all its processes append, and which one of them drains."""
