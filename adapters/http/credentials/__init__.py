"""Who sends the requests of an adapter: keys, tokens that expire, signatures.

Law: a secret stays in this package and in the header that carries it; texts show `***`. A library that is an extra is imported
when it is configured.
"""
