output "connection" {
  description = "Airflow's connection `lowtide_default`, without its two secrets."
  value       = local.connection
}

output "connection_secret" {
  description = "The secret that holds the whole connection, as Airflow's Secrets Manager backend reads it."
  value       = { arn = aws_secretsmanager_secret.connection.arn, name = aws_secretsmanager_secret.connection.name }
}

output "security_group_id" {
  description = "The group of Airflow's hosts, for whatever they connect to."
  value       = local.group
}

output "url" {
  description = "Airflow's page, if it was made here."
  value       = local.make ? "https://${aws_mwaa_environment.this[0].webserver_url}" : null
}
