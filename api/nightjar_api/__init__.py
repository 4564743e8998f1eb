"""The contracts between Nightjar's components, and the root of the `nightjar` command."""
