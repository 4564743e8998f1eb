# Stands in for python:3.11-slim where there is no registry. Context: base.tar, made by mmdebstrap.
FROM scratch
ADD base.tar /
