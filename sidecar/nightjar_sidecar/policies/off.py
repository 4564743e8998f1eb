"""Never speculate."""

from nightjar_sidecar.policies.fixed import Fixed

OFF = Fixed(0)
