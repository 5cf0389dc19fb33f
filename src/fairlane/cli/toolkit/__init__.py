"""The toolkit that commands are built with: parameters, output, tables and screens."""
