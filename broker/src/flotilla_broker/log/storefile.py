"""The file `store.json`: what the folder is.

It is written before the first segment, with `begun` false, and once more when that segment is on disk; so a
folder whose making was interrupted is told from one that lost its segments.
"""

import json

import msgspec

from flotilla_broker.log.errors import StoreUnreadable
from flotilla_broker.log.files import FileSystem
from flotilla_broker.log.records import FORMAT, StoreRecord, decode_store, encode_store
from flotilla_broker.log.segments import STORE, TEMPORARY

_STORE_BYTES_MAX = 64 << 10


def read_store(fs: FileSystem) -> StoreRecord | None:
    """Read the file; None if there is none. Raises StoreUnreadable."""
    if STORE not in fs.names():
        return None
    text = fs.open(STORE).read(0, _STORE_BYTES_MAX)
    try:
        version = json.loads(text)["format"]
        if version != FORMAT:
            raise StoreUnreadable(f"{STORE} says format {version!r}; this version of Flotilla reads format {FORMAT}")
        return decode_store(text)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise StoreUnreadable(
            f"{STORE} is damaged ({error}): the replicas in this folder have to be rebuilt"
        ) from error


def write_store(fs: FileSystem, store: StoreRecord) -> None:
    """Replace the file, in one step."""
    file = fs.create(STORE + TEMPORARY)
    file.write(0, [encode_store(store)])
    file.sync()
    fs.rename(STORE + TEMPORARY, STORE)
    fs.sync_folder()
