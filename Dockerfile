# RoomScout in a container. docs/clusters.md shows how to run it.
#   docker build --target cuda -t roomscout:cuda .     models on NVIDIA GPUs (the host has the driver)
#   docker build --target cpu -t roomscout:cpu .       models on CPUs
#   docker build --target core -t roomscout:core .     no PyTorch: models behind servers
# The image has the commit that is checked out, and records it in its runs; uncommitted changes are not in it.
FROM debian:bookworm-slim AS system
# What open3d and pyrender load: see scripts/install.sh.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates python3 \
        libusb-1.0-0 libgl1 libx11-6 libgomp1 libegl1 libudev1 libidn2-0 \
        libgl1-mesa-dri libxrender1 \
    && rm -rf /var/lib/apt/lists/*

FROM system AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends git python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python3 -m venv /opt/roomscout
ENV PATH=/opt/roomscout/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

FROM build AS build-core
RUN pip install -c constraints.txt git+file:///source

FROM build-core AS build-cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN grep -E '^torch(vision)?==' constraints.txt > /torch.txt \
    && pip install --index-url "$TORCH_INDEX" -r /torch.txt \
    && pip install -c constraints.txt "roomscout[models]"

FROM build-core AS build-cuda
RUN pip install -c constraints.txt "roomscout[models]"

# A user without a name, as --user gives, needs a home that it may write to, and a name.
FROM system AS run
ENV PATH=/opt/roomscout/bin:$PATH HOME=/tmp USER=roomscout PYTHONUNBUFFERED=1
WORKDIR /work
USER 1000:1000
ENTRYPOINT ["roomscout"]
CMD ["--help"]

FROM run AS core
COPY --from=build-core /opt/roomscout /opt/roomscout

FROM run AS cpu
COPY --from=build-cpu /opt/roomscout /opt/roomscout

FROM run AS cuda
# graphics gives pyrender the GPU through EGL
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
COPY --from=build-cuda /opt/roomscout /opt/roomscout
