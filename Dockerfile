# Two stages: the build needs Go and gcc (the CPU kernels are C), the image only the binary and glibc.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/bin/omni-engine /usr/local/bin/omni-engine
ENV HF_HOME=/models
VOLUME /models
EXPOSE 8000
# Stopped with SIGTERM, which drains; give docker stop more than --shutdown-timeout.
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s CMD ["/usr/local/bin/omni-engine", "health"]
ENTRYPOINT ["/usr/local/bin/omni-engine"]
CMD ["serve"]
