"""Which keys Compose and Kubernetes know, as far as our files use them, and what stands below each.

There is neither of them where the tests run. A key that is misspelt or stands in the wrong place, which they would
refuse or pass over, is found by comparing with these."""

from __future__ import annotations

from typing import Any

TEXT = str
NUMBER = int
FLAG = bool
ANY = object  # free keys: labels, variables


class Many:
    """A mapping with names of our own, each of the same shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


_LABELS = Many(TEXT)
_SELECTOR = {"matchLabels": _LABELS}
_HTTP_PROBE = {
    "httpGet": {"path": TEXT, "port": TEXT},
    "periodSeconds": NUMBER,
    "timeoutSeconds": NUMBER,
    "failureThreshold": NUMBER,
    "initialDelaySeconds": NUMBER,
}
_ENV = {
    "name": TEXT,
    "value": TEXT,
    "valueFrom": {"fieldRef": {"fieldPath": TEXT}, "secretKeyRef": {"name": TEXT, "key": TEXT}},
}
_CONTAINER = {
    "name": TEXT,
    "image": TEXT,
    "args": [TEXT],
    "env": [_ENV],
    "ports": [{"name": TEXT, "containerPort": NUMBER}],
    "startupProbe": _HTTP_PROBE,
    "readinessProbe": _HTTP_PROBE,
    "livenessProbe": _HTTP_PROBE,
    "resources": {"requests": Many(TEXT), "limits": Many(TEXT)},
    "securityContext": {
        "allowPrivilegeEscalation": FLAG,
        "readOnlyRootFilesystem": FLAG,
        "capabilities": {"drop": [TEXT], "add": [TEXT]},
    },
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "readOnly": FLAG}],
}
_POD = {
    "automountServiceAccountToken": FLAG,
    "serviceAccountName": TEXT,
    "terminationGracePeriodSeconds": NUMBER,
    "securityContext": {
        "runAsNonRoot": FLAG,
        "runAsUser": NUMBER,
        "runAsGroup": NUMBER,
        "fsGroup": NUMBER,
        "seccompProfile": {"type": TEXT},
    },
    "topologySpreadConstraints": [
        {"maxSkew": NUMBER, "topologyKey": TEXT, "whenUnsatisfiable": TEXT, "labelSelector": _SELECTOR}
    ],
    "containers": [_CONTAINER],
    "volumes": [{"name": TEXT, "emptyDir": Many(TEXT)}],
}
_METADATA = {"name": TEXT, "namespace": TEXT, "labels": _LABELS, "annotations": Many(TEXT)}

MANIFESTS: dict[tuple[str, str], Any] = {
    ("v1", "Service"): {
        "clusterIP": TEXT,
        "publishNotReadyAddresses": FLAG,
        "selector": _LABELS,
        "ports": [{"name": TEXT, "port": NUMBER, "targetPort": NUMBER}],
    },
    ("policy/v1", "PodDisruptionBudget"): {"maxUnavailable": NUMBER, "selector": _SELECTOR},
    ("apps/v1", "StatefulSet"): {
        "serviceName": TEXT,
        "replicas": NUMBER,
        "podManagementPolicy": TEXT,
        "selector": _SELECTOR,
        "template": {"metadata": _METADATA, "spec": _POD},
        "volumeClaimTemplates": [
            {
                "metadata": _METADATA,
                "spec": {"accessModes": [TEXT], "resources": {"requests": Many(TEXT)}},
            }
        ],
    },
}
MANIFEST: dict[str, Any] = {"apiVersion": TEXT, "kind": TEXT, "metadata": _METADATA}

COMPOSE: dict[str, Any] = {
    "name": TEXT,
    "services": Many(
        {
            "image": TEXT,
            "build": {"context": TEXT, "dockerfile": TEXT},
            "command": [TEXT],
            "environment": Many(TEXT),
            "ports": [TEXT],
            "volumes": [TEXT],
            "configs": [{"source": TEXT, "target": TEXT}],
            "depends_on": Many({"condition": TEXT}),
            "healthcheck": {"test": [TEXT], "interval": TEXT, "timeout": TEXT, "retries": NUMBER},
            "restart": TEXT,
            "stop_grace_period": TEXT,
            "read_only": FLAG,
            "tmpfs": [TEXT],
            "cap_drop": [TEXT],
            "security_opt": [TEXT],
        }
    ),
    "configs": Many({"content": TEXT}),
    "volumes": Many(Many(ANY)),
}


def misfits(found: Any, shape: Any, place: str = "") -> list[str]:
    """Where something differs from its shape."""
    if isinstance(shape, Many):
        shape = dict.fromkeys(found, shape.shape) if isinstance(found, dict) else {}
    if isinstance(shape, dict):
        if not isinstance(found, dict):
            return [f"{place}: a mapping stands here"]
        unknown = [f"{place}.{key}: no such key" for key in found if key not in shape]
        return unknown + [
            wrong
            for key, value in found.items()
            if key in shape
            for wrong in misfits(value, shape[key], f"{place}.{key}")
        ]
    if isinstance(shape, list):
        if not isinstance(found, list):
            return [f"{place}: a list stands here"]
        return [wrong for at, one in enumerate(found) for wrong in misfits(one, shape[0], f"{place}[{at}]")]
    # A flag is a number to Python, not to them.
    fits = isinstance(found, shape) and (shape is not int or not isinstance(found, bool))
    return [] if fits else [f"{place}: {found!r} is not a {shape.__name__}"]
