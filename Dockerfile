# Image of brokers, managers, the operator and the command `flotilla`. The arguments select the program:
#
#   docker run flotilla python3 -m flotilla_broker --help
#   docker run flotilla python3 -m flotilla_manager --help
#   docker run flotilla python3 -m flotilla_operator --help
#
# The root file system can be read-only, with a volume for the data folder.
# BASE is any Debian with Python 3.11 or newer.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
RUN python3 -m venv /opt/flotilla
ENV PATH=/opt/flotilla/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
# Dependencies come first, so that changes of our code reuse their layer.
COPY requirements-server.lock .
RUN pip install --quiet --require-hashes --requirement requirements-server.lock
COPY client client
COPY server server
COPY broker broker
COPY manager manager
COPY operator operator
# Build tools are removed; `pip check` fails if another package requires one.
RUN pip install --quiet --no-deps --no-build-isolation ./client ./server ./broker ./manager ./operator \
    && pip uninstall --quiet --yes hatchling packaging pathspec pluggy trove-classifiers \
    && pip check \
    && pip uninstall --quiet --yes pip \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/flotilla

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/* \
    && groupadd --gid 10001 flotilla \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin flotilla
COPY --from=build /opt/flotilla /opt/flotilla
ENV PATH=/opt/flotilla/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
# tini is PID 1, to forward signals and to reap processes.
ENTRYPOINT ["tini", "--"]
CMD ["flotilla", "--help"]
