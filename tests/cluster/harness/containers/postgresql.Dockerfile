# PostgreSQL from Debian, with the user that the official image has.
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15 \
    && usermod --uid 999 postgres && groupmod --gid 999 postgres
USER 999
