output "master" {
  description = "Where a job is submitted."
  value       = "spark://${var.master}:7077"

  depends_on = [hosts_program.worker]
}

output "defaults" {
  description = "Spark's own settings, for those who submit: spark-defaults.conf."
  value       = local.defaults
  sensitive   = true
}
