"""Removal of finalizers before the operator ends permanently: with its namespace, or with the chart."""

import logging
from collections.abc import Iterable

from flotilla_operator.errors import Rejected
from flotilla_operator.kubernetes_client import Data, KubernetesClient
from flotilla_operator.names import FINALIZER, TOPIC

logger = logging.getLogger(__name__)


async def remove_finalizers(kubernetes: KubernetesClient, topics: Iterable[Data]) -> bool:
    """Remove the finalizer from all Topics; return whether that succeeded for each. Raises Unavailable."""
    is_done = True
    for one in topics:
        name, current = one["metadata"]["name"], tuple(one["metadata"].get("finalizers") or ())
        if FINALIZER not in current:
            continue
        try:
            await kubernetes.set_finalizers(TOPIC, one, tuple(each for each in current if each != FINALIZER))
            logger.info("finalizer removed, records kept kind=Topic name=%s", name)
        except Rejected as error:  # it was changed or deleted meanwhile: continue with the others
            logger.warning("finalizer not removed kind=Topic name=%s error=%r", name, str(error))
            is_done = False
    return is_done
