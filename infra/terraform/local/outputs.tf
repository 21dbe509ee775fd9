output "name" {
  description = "The cluster's name."
  value       = var.name
}

output "conf" {
  description = "Lowtide's conf for jobs on this cluster, as it lies on the driver's host."
  value       = local.conf
}

output "hosts" {
  description = "The hosts' addresses."
  value       = { for name, host in module.network.network.hosts : name => host.address }
}

output "submitter" {
  description = "All files that a host needs to start jobs: name to content."
  value       = local.submitter
  sensitive   = true
}

output "airflow" {
  description = "Airflow's address, and the password of its user admin."
  value       = local.airflow ? { url = module.airflow[0].url, password = module.airflow[0].password } : null
  sensitive   = true
}
