output "hosts" {
  description = "Where clients find it: host:port, with commas."
  value       = join(",", [for host in var.hosts : "${local.addresses[host]}:2181"])

  depends_on = [aws_volume_attachment.this]
}

output "security_group_id" {
  description = "The group of its hosts."
  value       = aws_security_group.this.id
}

output "instances" {
  description = "The hosts' ids: name to id."
  value       = { for host, instance in aws_instance.this : host => instance.id }
}
