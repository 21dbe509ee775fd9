# What AWS would answer, where a random string will not do.

mock_data "aws_partition" {
  defaults = { partition = "aws" }
}

mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}

mock_data "aws_region" {
  defaults = { region = "us-east-1" }
}

mock_resource "aws_kms_key" {
  defaults = { arn = "arn:aws:kms:us-east-1:123456789012:key/k" }
}

mock_resource "aws_msk_cluster" {
  defaults = { bootstrap_brokers_sasl_scram = "b-1.example:9096,b-2.example:9096,b-3.example:9096" }
}

mock_resource "aws_emr_cluster" {
  defaults = {
    id  = "j-1"
    arn = "arn:aws:elasticmapreduce:us-east-1:123456789012:cluster/j-1"
  }
}

mock_resource "aws_secretsmanager_secret" {
  defaults = { arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:s" }
}

mock_resource "aws_cloudwatch_log_group" {
  defaults = { arn = "arn:aws:logs:us-east-1:123456789012:log-group:g" }
}

mock_resource "aws_iam_role" {
  defaults = { arn = "arn:aws:iam::123456789012:role/r" }
}

mock_resource "aws_security_group" {
  defaults = { id = "sg-0123456789abcdef0" }
}

mock_resource "aws_network_interface" {
  defaults = { private_ip = "10.78.0.4" }
}
