"""The file `store.json`: format and settings of the log.

It is written before the first segment, with `begun` false, and again when that segment is on disk. So an interrupted
creation can be distinguished from a log that lost its segments.
"""

import json

import msgspec

from flotilla_broker.log.errors import StoreUnreadable
from flotilla_broker.log.files import FileSystem
from flotilla_broker.log.records import FORMAT, StoreRecord, decode_store, encode_store
from flotilla_broker.log.segments import STORE, TEMPORARY

_STORE_BYTES_MAX = 64 << 10


def read_store(fs: FileSystem) -> StoreRecord | None:
    """Read the file; None if it does not exist. Raises StoreUnreadable."""
    if STORE not in fs.names():
        return None
    text = fs.open(STORE).read(0, _STORE_BYTES_MAX)
    try:
        version = json.loads(text)["format"]
        if version != FORMAT:
            raise StoreUnreadable(f"{STORE} has format {version!r}; this version of Flotilla supports format {FORMAT}")
        return decode_store(text)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise StoreUnreadable(
            f"{STORE} is damaged ({error}): rebuild the replicas of this log from other brokers"
        ) from error


def write_store(fs: FileSystem, store: StoreRecord) -> None:
    """Replace the file atomically."""
    file = fs.create(STORE + TEMPORARY)
    file.write(0, [encode_store(store)])
    file.sync()
    fs.rename(STORE + TEMPORARY, STORE)
    fs.sync_folder()
