output "bootstrap_servers" {
  description = "Where clients find it: host:port, with commas."
  value       = aws_msk_cluster.this.bootstrap_brokers_sasl_scram

  depends_on = [aws_msk_scram_secret_association.this]
}

output "security" {
  description = "How clients log in."
  value       = { protocol = "SASL_SSL", mechanism = "SCRAM-SHA-512", username = var.user }
}

output "password" {
  description = "Where the user's password lies: the secret's ARN."
  value       = aws_secretsmanager_secret.this.arn
}
