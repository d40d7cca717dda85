#!/usr/bin/env bash
# Builds the three binaries into bin/ and their images into bin/images/, as tars
# (no container engine needed). The names are $IMAGE_PREFIX + binary + :$IMAGE_TAG.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

IMAGE_PREFIX=${IMAGE_PREFIX:-localhost/}
IMAGE_TAG=${IMAGE_TAG:-dev}
OUT=$ROOT/bin
MODULE=github.com/causeway-dev/causeway

# Images start from nothing, so the roots that upstream certificates are checked
# against come from the machine that builds.
ROOTS=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

usage() {
  echo "usage: images.sh [--binaries]   binaries only, or binaries and images" >&2
  exit 2
}
case ${1:-} in '' | --binaries) ;; *) usage ;; esac

need_go
mkdir -p "$OUT/images"
cd "$ROOT"

declare -A MAIN=(
  [causeway-operator]=./controllers/cmd/manager
  [causeway-proxy]=./proxy/cmd/proxy
  [causeway-upstream]=./test/upstream/cmd/causeway-upstream
)
say "Building ${!MAIN[*]} ($(version))"
for name in "${!MAIN[@]}"; do
  go build -ldflags "-s -w -X $MODULE/api/version.Version=$(version)" -o "$OUT/$name" "${MAIN[$name]}"
done
[ "${1:-}" != --binaries ] || exit 0

go build -ldflags "-s -w" -o "$OUT/mkimage" ./hack/mkimage
[ -r "$ROOTS" ] || fail "no root certificates at $ROOTS" "Debian: apt-get install ca-certificates; elsewhere set SSL_CERT_FILE."
for name in "${!MAIN[@]}"; do
  "$OUT/mkimage" -o "$OUT/images/$name.tar" -ref "$IMAGE_PREFIX$name:$IMAGE_TAG" -entrypoint "/$name" \
    "$OUT/$name=/$name" "$ROOTS=/etc/ssl/certs/ca-certificates.crt"
  say "    bin/images/$name.tar holds $IMAGE_PREFIX$name:$IMAGE_TAG"
done
