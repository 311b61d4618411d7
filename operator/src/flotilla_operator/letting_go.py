"""Topics are let go where nobody will be there to delete their records: with a namespace, or with Flotilla."""

import logging
from collections.abc import Iterable

from flotilla_operator.errors import Refused
from flotilla_operator.kube import TOPIC, Data, Kube
from flotilla_operator.names import FINALIZER

logger = logging.getLogger(__name__)


async def let_go(kube: Kube, topics: Iterable[Data]) -> bool:
    """Take our finalizer from topics; tell whether none has it any more. Raises Away."""
    is_done = True
    for one in topics:
        name, has = one["metadata"]["name"], tuple(one["metadata"].get("finalizers") or ())
        if FINALIZER not in has:
            continue
        try:
            await kube.set_finalizers(TOPIC, one, tuple(each for each in has if each != FINALIZER))
            logger.info("Topic %s is let go; its records stay", name)
        except Refused as error:  # somebody else changes it, or it is gone: the others are let go in any case
            logger.warning("Topic %s: %s", name, error)
            is_done = False
    return is_done
