output "hosts" {
  description = "Where clients find it: host:port, with commas."
  value       = join(",", [for host in var.hosts : "${host}:2181"])

  depends_on = [hosts_program.this]
}
