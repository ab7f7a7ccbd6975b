# An image with a Python application and the server before it. Build the server's image first: `docker build -f
# contrib/Dockerfile -t ringroad .`; then, in the folder of the application, this one.
#   docker build -f Dockerfile.app -t shop .
#   docker run --rm -p 8080:8080 shop
FROM ringroad AS server

FROM python:3-slim
COPY --from=server /ringroad /usr/local/bin/ringroad
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
USER 65534:65534
EXPOSE 8080
# It is the first process and ends its workers; a container that is stopped finishes its requests first (`drain`).
CMD ["ringroad", "serve", "--app", "main:app", "--workers", "2", "--listen", ":8080", "--control", "/tmp/ringroad.sock"]
HEALTHCHECK CMD ["ringroad", "app", "status", "--control", "/tmp/ringroad.sock"]
