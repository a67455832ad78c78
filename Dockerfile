FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /orderd ./cmd/orderd

# Not scratch: the health check needs a wget, gateways over HTTPS need root certificates.
FROM alpine:3
COPY --from=build /orderd /usr/local/bin/orderd
RUN install -d -o nobody -g nobody /data
ENV ORDERD_DATA_DIR=/data
USER nobody
ENTRYPOINT ["orderd"]
CMD ["serve"]
