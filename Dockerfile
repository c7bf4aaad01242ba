# Any image with Python >= 3.11, venv and pip will do; both stages must use the same one.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PROJECT_ENVIRONMENT=/opt/a2a-gateway \
    UV_PYTHON=python3 \
    UV_PYTHON_DOWNLOADS=never
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv==0.13.8
WORKDIR /src
# The dependencies are a layer of their own, made again only when the lock changes.
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --locked --no-dev --all-extras --no-install-project
COPY . .
# What `a2a-gateway --version` says: the sources here have no git to ask. For a release: --build-arg VERSION=0.1.0
ARG VERSION=0.0.0
RUN SETUPTOOLS_SCM_PRETEND_VERSION="$VERSION" /opt/uv/bin/uv sync --locked --no-dev --all-extras --no-editable

FROM ${PYTHON_IMAGE}
ENV PATH=/opt/a2a-gateway/bin:$PATH \
    MALLOC_MMAP_THRESHOLD_=1048576 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/a2a-gateway /opt/a2a-gateway
RUN mkdir /data && chown 10001:10001 /data
# `health` finds the configuration here, and asks the port that it names.
WORKDIR /etc/a2a-gateway
VOLUME /data
USER 10001:10001
# The configuration file has to say `server: {host: 0.0.0.0}`, or only the container itself reaches the gateway; as long as it
# asks nobody who they are, `serve` wants --insecure for that. The database belongs on the volume:
# `storage: {url: "sqlite:////data/gateway.db"}`. How the same is said with variables: docs/operations.md.
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 CMD ["a2a-gateway", "health"]
ENTRYPOINT ["a2a-gateway"]
CMD ["serve", "-c", "/etc/a2a-gateway/gateway.yaml"]
