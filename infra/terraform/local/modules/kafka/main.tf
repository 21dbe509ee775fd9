# Kafka brokers that are controllers as well. Clients come over TLS and log in with SCRAM; brokers know each other by
# their certificates.

locals {
  numbers = { for place, host in var.hosts : host => place + 1 }
  copies  = min(3, length(var.hosts))
  in_sync = length(var.hosts) >= 3 ? 2 : 1
  voters  = join(",", [for host, number in local.numbers : "${number}@${host}:9093"])
  java    = ["/opt/java/bin/java", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=/home/kafka/log4j2.properties"]
  quick   = var.optimises ? [] : ["-XX:TieredStopAtLevel=1"]
  scram   = join(" ", [for user in var.users : "--add-scram 'SCRAM-SHA-512=[name=${user},password=${hosts_secret.password[user].hex}]'"])
  storage = "/opt/java/bin/java -Xmx128m -XX:TieredStopAtLevel=1 -cp '/opt/kafka/*' kafka.tools.StorageTool"
}

resource "hosts_secret" "cluster" {
  name = "the Kafka cluster's id"
}

resource "hosts_secret" "password" {
  for_each = toset(var.users)

  name = "Kafka's ${each.key}"
}

resource "hosts_certificate" "this" {
  for_each = local.numbers

  names                 = [each.key, var.network.hosts[each.key].address]
  authority_certificate = var.authority.certificate
  authority_key         = var.authority.key
}

resource "hosts_program" "this" {
  for_each = local.numbers

  network = var.network.name
  host    = each.key
  boot    = var.network.hosts[each.key].boot
  name    = "kafka"
  command = concat(local.java, local.quick, ["-Xms256m", "-Xmx384m", "-cp", "/opt/kafka/*", "kafka.Kafka", "/home/kafka/server.properties"])
  prepare = "${local.storage} format --ignore-formatted -t ${hosts_secret.cluster.id} -c server.properties ${local.scram} > format.log && sed -i /SCRAM/d format.log"
  files = {
    "server.properties" = templatefile("${path.module}/server.properties.tftpl", {
      number  = each.value
      host    = each.key
      voters  = local.voters
      copies  = local.copies
      in_sync = local.in_sync
    })
    "broker.pem"        = "${hosts_certificate.this[each.key].certificate}${hosts_certificate.this[each.key].key}"
    "ca.pem"            = var.authority.certificate
    "log4j2.properties" = file("${path.module}/log4j2.properties")
  }
  port          = 9092
  start_limit_s = 120
  stop_limit_s  = 3
}
