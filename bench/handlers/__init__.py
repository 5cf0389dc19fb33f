"""One handler, as each of the servers that bench/servers.py compares wants it: it decodes a push and answers."""
