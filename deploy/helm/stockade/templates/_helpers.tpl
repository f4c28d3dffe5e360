{{- define "stockade.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "stockade.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "stockade.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "stockade.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "stockade.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stockade.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- /* part-of is what the policies protect-cluster and protect-namespace know Stockade's objects by. */}}
{{- define "stockade.labels" -}}
{{ include "stockade.selectorLabels" . }}
app.kubernetes.io/part-of: stockade
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "stockade.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "stockade.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "stockade.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "stockade.exporters" -}}
{{- $out := list }}
{{- with .Values.events.jsonl }}
{{- if .enabled }}
{{- if not (or (eq .path "-") (hasPrefix "/var/log/stockade/" .path)) }}
{{- fail "events.jsonl.path is - or below /var/log/stockade/: the rest of the root is read-only" }}
{{- end }}
{{- $one := dict "kind" "jsonl" "path" .path "format" .format }}
{{- if ne .path "-" }}
{{- $one = merge $one (dict "rotatebytes" (int64 .rotateBytes) "rotatekeep" (int64 .rotateKeep)) }}
{{- end }}
{{- $out = append $out $one }}
{{- end }}
{{- end }}
{{- range .Values.events.kafka }}
{{- $dir := printf "/etc/stockade/kafka/%s" .name }}
{{- $one := dict "kind" "kafka" "name" .name "hostport" (join "," .brokers) "topic" .topic "tls" .tls }}
{{- if .caSecret }}{{ $_ := set $one "cacertfile" (printf "%s/ca" $dir) }}{{ end }}
{{- if .clientCertSecret }}
{{- $_ := set $one "certfile" (printf "%s/cert" $dir) }}
{{- $_ := set $one "keyfile" (printf "%s/key" $dir) }}
{{- end }}
{{- with .sasl }}
{{- $_ := set $one "sasl" .mechanism }}
{{- $_ := set $one "username" .username }}
{{- $_ := set $one "passwordfile" (printf "%s/password" $dir) }}
{{- end }}
{{- $out = append $out (merge $one (default dict .options)) }}
{{- end }}
{{- toYaml $out }}
{{- end }}

{{- /* /etc/stockade/config.yaml. Pods are judged where they run: nothing is launched, and no sandbox made ahead. */}}
{{- define "stockade.config" -}}
{{- $config := dict
      "runtime_dir" "/run/stockade"
      "state_dir" "/var/lib/stockade"
      "pin_dir" "/sys/fs/bpf/stockade"
      "policy_dirs" (list "/etc/stockade/policies.d" "/usr/share/stockade/policies")
      "default_policy" .Values.agent.defaultPolicy
      "backend" .Values.agent.backend
      "kills_per_minute" (int64 .Values.agent.killsPerMinute)
      "made_ahead" false
      "rules" (dict "dirs" (list "/usr/share/stockade/detections" "/etc/stockade/rules.d") "dry_run" .Values.agent.rulesDryRun) }}
{{- if .Values.agent.policyConfigMaps }}
{{- $_ := set $config "policy_dirs" (prepend (get $config "policy_dirs") "/usr/share/stockade/objects") }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $config "metrics" (dict "listen" (printf "%s:%d" .Values.metrics.address (int64 .Values.metrics.port))) }}
{{- else }}
{{- $_ := set $config "metrics" (dict "listen" "off") }}
{{- end }}
{{- with .Values.nri }}
{{- if .enabled }}
{{- $kubernetes := dict "nri" "/var/run/nri/nri.sock" "index" .index "policies" .policies "resolvers" .resolvers "unprotected" .unprotected }}
{{- if eq .labels "clawql" }}{{ $_ := set $kubernetes "labels" "clawql" }}{{ end }}
{{- $namespaces := dict }}
{{- range $.Values.security.sandboxNamespaces }}
{{- $_ := set $namespaces .name (pick . "policy" "policies") }}
{{- end }}
{{- if $namespaces }}{{ $_ := set $kubernetes "namespaces" $namespaces }}{{ end }}
{{- $_ := set $config "kubernetes" $kubernetes }}
{{- end }}
{{- end }}
{{- $exporters := include "stockade.exporters" . | fromYamlArray }}
{{- if $exporters }}
{{- $_ := set $config "events" (dict "spool" (dict "max_bytes" (int64 .Values.events.spoolMaxBytes)) "exporters" $exporters) }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.agent.config)) }}
{{- end }}
