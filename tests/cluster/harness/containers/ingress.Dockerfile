# Image of the ingress controller.
FROM scratch
COPY skipper /skipper
USER 65534
ENTRYPOINT ["/skipper"]
