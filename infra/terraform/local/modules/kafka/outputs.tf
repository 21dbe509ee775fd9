output "bootstrap_servers" {
  description = "Where clients find it: host:port, with commas."
  value       = join(",", [for host in var.hosts : "${host}:9092"])

  depends_on = [hosts_program.this]
}

output "security" {
  description = "How clients log in."
  value       = { protocol = "SASL_SSL", mechanism = "SCRAM-SHA-512", username = var.users[0] }
}

output "password" {
  description = "The first user's password."
  value       = hosts_secret.password[var.users[0]].hex
  sensitive   = true
}
