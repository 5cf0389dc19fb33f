"""The journal: a file to which all processes of a broker append, and which one of them drains."""
