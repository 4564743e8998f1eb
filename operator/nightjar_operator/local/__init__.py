"""One pod of a NightjarService as processes of this machine."""
