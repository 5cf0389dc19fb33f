"""HTTP: the broker on the network, an HTTP/1.1 server, the wire API over the broker."""
