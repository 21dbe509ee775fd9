# An S3 server with one bucket.

resource "hosts_secret" "this" {
  name = "the S3 server's key"
}

resource "hosts_certificate" "this" {
  names                 = [var.host, var.network.hosts[var.host].address]
  authority_certificate = var.authority.certificate
  authority_key         = var.authority.key
}

resource "hosts_program" "this" {
  network = var.network.name
  host    = var.host
  boot    = var.network.hosts[var.host].boot
  name    = "s3"
  command = [
    "/opt/s3/versitygw", "--port", ":9000", "--cert", "/home/s3/server.pem", "--key", "/home/s3/server.key",
    "posix", "--sidecar", "/home/s3/sidecar", "/home/s3/objects",
  ]
  environment = { ROOT_ACCESS_KEY_ID = "lowtide", ROOT_SECRET_ACCESS_KEY = hosts_secret.this.hex }
  files       = { "server.pem" = hosts_certificate.this.certificate, "server.key" = hosts_certificate.this.key }
  prepare     = "mkdir -p sidecar objects/${var.bucket}"
  port        = 9000
}
