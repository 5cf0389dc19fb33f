"""Small families, written once for both stores: a module over the runner, its statements in each dialect
beside it."""
