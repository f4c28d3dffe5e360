// Events to Apache Kafka: keyed, idempotent, acknowledged by all replicas.
//
//   SK_ASSIGN_OR_RETURN(auto kafka, MakeKafka({{"hostport", "broker:9092"}, {"topic", "stockade"}}));
//
// Topic <topic>.<class> (process, file, network, dns, findings, lifecycle, audit), key = session, else
// sandbox, else node: what is of one session is in one partition of each topic, in order. Headers are
// those of CloudEvents, and stockade-again where it may have been sent before.
//
// Options, named as Falcosidekick names them where they mean the same:
//   hostport     brokers, with commas; required
//   topic        prefix of the topics (stockade); topic.<class> = the whole name of one
//   format       json or ocsf (json)
//   clientid     (stockade)
//   compression  none, gzip, snappy, lz4 or zstd (zstd)
//   tls          true or false; cacertfile, certfile, keyfile: PEM; the last two for mutual TLS
//   sasl         PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; username, and password or passwordfile
//   queuebytes   events under way, in bytes (16777216)
// Not to be set: acks is all, for less would lose events without telling.
#pragma once

#include <memory>

#include "exporters/exporter.h"

namespace stockade::exporters {

// kInvalidArgument names the option. No broker is asked: one that is away is waited for.
StatusOr<std::unique_ptr<SpooledExporter>> MakeKafka(const ExporterOptions& options);

}  // namespace stockade::exporters
