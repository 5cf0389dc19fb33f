"""Small families, written once for both stores: a module over the port, its statements in each dialect
beside it."""
