"""Consumer groups: who has which partition. Pure; the writer asks, stores and answers; so does `flotilla.testing`."""
