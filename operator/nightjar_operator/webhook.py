"""The optional validating webhook: refuses at `kubectl apply` what the rules of the definition cannot express."""

from typing import Any

import kopf

from nightjar_operator.admission import review
from nightjar_operator.certificate import RenewedCertificate
from nightjar_operator.kinds import NIGHTJAR_SERVICE
from nightjar_operator.settings import Webhook

ID = "validate"
"""Also the path to which the API server's webhook configuration points."""

# Kopf would start its server again when the files change: with one half of a pair, while they are being written, it
# would end, and what changes before it looks first it would never see.
_NEVER_SECONDS = 1e9
_UNPROCESSABLE = 422


def add_webhook(registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, webhook: Webhook) -> None:
    """Have Kopf serve it. The webhook configuration in the cluster is the chart's, not ours."""
    settings.admission.server = kopf.WebhookServer(
        addr="0.0.0.0",  # noqa: S104 - the API server comes from outside the pod
        port=webhook.port,
        certfile=webhook.certificate,
        pkeyfile=webhook.key,
        context=RenewedCertificate(webhook.certificate, webhook.key).context,
        file_check_interval=_NEVER_SECONDS,
    )
    kind = NIGHTJAR_SERVICE

    @kopf.on.validate(kind.group, kind.version, kind.plural, registry=registry, id=ID, operations=["CREATE", "UPDATE"])
    def _validate(body: kopf.Body, warnings: list[str], **found: Any) -> None:
        before = dict(found["old"]) if found["old"] else None
        verdict = review(dict(body), before, webhook.gpu_memory_bytes)
        warnings += verdict.warnings
        if verdict.refusals:
            raise kopf.AdmissionError("; ".join(verdict.refusals), code=_UNPROCESSABLE)
