# An image of your own: Shoal with the programs that the agent's commands (the `exec` tool) may use.
# docker build --file deploy/examples/own-image.Dockerfile --tag registry.example.org/shoal-tools:0.2.0 deploy/examples
FROM registry.example.org/shoal:0.2.0
USER 0:0
# Every program is there for whoever may have commands run; a runner gives them no network.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        curl=7.88.* git=1:2.39.* nodejs=18.* \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
