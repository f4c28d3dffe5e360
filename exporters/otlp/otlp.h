// Events to whatever takes logs by OTLP over HTTP: an OpenTelemetry collector, Loki (/otlp/v1/logs), and others.
//
//   SK_ASSIGN_OR_RETURN(auto otlp, MakeOtlp({{"endpoint", "https://collector:4318/v1/logs"}}));
//
// Each event is a log record: its JSON (or OCSF) the body, its sandbox's traceparent the trace and span ids, severity by its verdict or
// finding, and what one looks for as attributes (session.id, stockade.sandbox.id, stockade.kind, ...). One request is under way at a time,
// so records come in the order of the spool.
//
// Options:
//   endpoint     http:// or https:// with the whole path; required
//   format       json or ocsf: of the body (json)
//   headersfile  lines "Name: value" that each request carries; for a token or a tenant. Everybody's but root's reading is refused
//   cacertfile, certfile, keyfile   PEM, of https; the last two for mutual TLS. The peer's certificate is always checked
//   timeoutms    of one request (10000)
//   batchbytes   of one request's body (1048576)
//
// Answers: 2xx is delivered. 400, 413 and 422 mean that the receiver does not want the content: the request comes again in parts, until it is
// known which records it will never take, and those are told as lost. A partial success does not say which records were refused: those of
// the request are sent again one by one, marked stockade.again. Anything else (no connection, time out, 401, 404, 429, 5xx) is waited out,
// as long as Retry-After says, and at most 5 s otherwise.
#pragma once

#include <memory>

#include "exporters/exporter.h"

namespace stockade::exporters {

// kInvalidArgument names the option. No receiver is asked: one that is away is waited for.
StatusOr<std::unique_ptr<SpooledExporter>> MakeOtlp(const ExporterOptions& options);

}  // namespace stockade::exporters
