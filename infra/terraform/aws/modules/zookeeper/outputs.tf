output "hosts" {
  description = "Where clients find it: host:port, with commas."
  value       = join(",", [for host in var.hosts : "${local.addresses[host]}:2181"])

  depends_on = [aws_volume_attachment.this]
}
