output "url" {
  description = "Airflow's pages and API."
  value       = "http://${var.network.hosts[var.host].address}:8080"

  depends_on = [hosts_program.this]
}

output "password" {
  description = "The password of the user admin."
  value       = hosts_secret.admin.hex
  sensitive   = true
}

output "connection" {
  description = "Airflow's connection lowtide_default, as AIRFLOW_CONN_LOWTIDE_DEFAULT holds it."
  value       = local.connection
  sensitive   = true
}
