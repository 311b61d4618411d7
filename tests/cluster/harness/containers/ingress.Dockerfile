# The ingress controller, on its own.
FROM scratch
COPY skipper /skipper
USER 65534
ENTRYPOINT ["/skipper"]
