"""Chat platforms on this machine, each in its own right: channels speak to them as to the real ones."""
