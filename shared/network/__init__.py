"""The way out: one decision for every outgoing call, whether a proxy makes the connection and which
certificates are trusted.

It is set once a process (`start`) and read where a client is made. Passing it by hand through every
model, tool, channel and package would leave room for one that was forgotten, and that one would be
a direct connection."""
