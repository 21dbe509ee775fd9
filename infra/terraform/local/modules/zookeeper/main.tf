# An ensemble of ZooKeeper servers. Who may change a node is up to whom it belongs to: digest ACLs.

locals {
  numbers = { for place, host in var.hosts : host => place + 1 }
  servers = [for host, number in local.numbers : "server.${number}=${host}:2888:3888"]
}


resource "hosts_program" "this" {
  for_each = local.numbers

  network = var.network.name
  host    = each.key
  boot    = var.network.hosts[each.key].boot
  name    = "zookeeper"
  command = [
    "/opt/java/bin/java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.configurationFile=/home/zookeeper/log4j2.properties", "-Dzookeeper.admin.enableServer=false",
    "-cp", "/opt/zookeeper/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/home/zookeeper/zoo.cfg",
  ]
  files = {
    "zoo.cfg"           = templatefile("${path.module}/zoo.cfg.tftpl", { servers = length(var.hosts) > 1 ? local.servers : [] })
    "data/myid"         = "${each.value}\n"
    "log4j2.properties" = file("${path.module}/log4j2.properties")
  }
  port = length(var.hosts) > 1 ? 3888 : 2181
}
