{{/*
The configuration of a role's nodes, as TOML: `config`, overridden by the role's own, and what the
chart knows itself. Arguments: root, role.
*/}}
{{- define "hermes.config" -}}
{{- $config := include "hermes.settings" . | fromJson -}}
{{- include "hermes.refusals" (dict "root" .root "role" .role "config" $config) -}}
{{- $_ := include "hermes.withWholeNumbers" $config -}}
{{- toToml $config -}}
{{- end -}}

{{- define "hermes.roles" -}}
{{- ternary (list "frontend" "consumers" "management") (list .role) .root.Values.standalone.enabled | toJson -}}
{{- end -}}

{{/* The settings that the values give to a role, as JSON. Arguments: root, role. */}}
{{- define "hermes.given" -}}
{{- $values := .root.Values -}}
{{- $config := deepCopy $values.config -}}
{{- range include "hermes.roles" . | fromJsonArray -}}
{{- $config = mustMergeOverwrite $config (deepCopy (index $values .).config) -}}
{{- end -}}
{{- $config | toJson -}}
{{- end -}}

{{/* With what the chart knows itself. */}}
{{- define "hermes.settings" -}}
{{- $values := .root.Values -}}
{{- $roles := include "hermes.roles" . | fromJsonArray -}}
{{- $config := include "hermes.given" . | fromJson -}}
{{- $added := dict "dc" $values.dc "roles" $roles -}}
{{- $grpc := dict -}}
{{- /* A node refuses certificates if none of its listeners asks for them. */ -}}
{{- $byCertificate := dig "security" "certificates" "enabled" false $config -}}
{{- $asks := false -}}
{{- range $listener := list "management" "frontend" -}}
{{- if not (and (has $listener $roles) (index $values.tls $listener).enabled) -}}
{{- $_ := set $config $listener (omit (index $config $listener) "tls") -}}
{{- if and $byCertificate (not (has $listener $roles)) -}}
{{- $_ := set $config $listener (omit (index $config $listener) "authentication") -}}
{{- end -}}
{{- else -}}
{{- $asks = or $asks (has (dig "tls" "client_auth" "" (index $config $listener)) (list "requested" "required")) -}}
{{- $folder := printf "/etc/hermes/tls/%s" $listener -}}
{{- $files := dict "certificate_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) -}}
{{- $_ := set $added $listener (dict "tls" $files) -}}
{{- $grpc = dict "tls" (deepCopy $files) -}}
{{- end -}}
{{- end -}}
{{- if and $byCertificate (not $asks) -}}
{{- $_ := set $config "security" (omit $config.security "certificates") -}}
{{- end -}}
{{- if has "frontend" $roles -}}
{{- $_ := set $added "spool" (dict "enabled" $values.spool.enabled "directory" "/var/lib/hermes/spool") -}}
{{- $_ := set $added "frontend" (mustMergeOverwrite (dict "memory" (dict "port" 8072)) ($added.frontend | default dict)) -}}
{{- end -}}
{{- if has "consumers" $roles -}}
{{- $_ := set $added "consumers" (dict "pull" (dict "port" 8071)) -}}
{{- end -}}
{{- if $values.standalone.enabled -}}
{{- $_ := set $added "log" (dict "directory" "/var/lib/hermes/log") -}}
{{- $config = omit $config "kafka" -}}
{{- end -}}
{{- if or (has "management" $roles) (has "frontend" $roles) -}}
{{- $_ := set $added "grpc" $grpc -}}
{{- else -}}
{{- $config = omit $config "grpc" -}}
{{- end -}}
{{- if has "management" $roles -}}
{{- $names := concat (dig "management" "allowed_hosts" list $config) (splitList "\n" (include "hermes.serviceNames" (dict "root" .root "role" "management"))) -}}
{{- $names = concat $names (splitList "\n" (include "hermes.publicNames" (dict "root" .root "role" "management"))) -}}
{{- $_ := set $added "management" (mustMergeOverwrite (dict "allowed_hosts" (without $names "" | uniq)) ($added.management | default dict)) -}}
{{- else if $config.management -}}
{{- $_ := set $config "management" (omit $config.management "webhook") -}}
{{- end -}}
{{- mustMergeOverwrite $config $added | toJson -}}
{{- end -}}

{{/* Makes whole numbers of a map, which Helm reads as floats, integers in place. */}}
{{- define "hermes.withWholeNumbers" -}}
{{- $map := . -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- include "hermes.withWholeNumbers" $value -}}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
{{- $_ := set $map $key (int64 $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The ports of a role's nodes, by name, as JSON. Arguments: root, role. */}}
{{- define "hermes.ports" -}}
{{- $config := include "hermes.settings" . | fromJson -}}
{{- $roles := $config.roles -}}
{{- $ports := dict -}}
{{- if has "frontend" $roles -}}
{{- $_ := set $ports "memory" 8072 -}}
{{- end -}}
{{- if has "consumers" $roles -}}
{{- $_ := set $ports "pull" 8071 -}}
{{- end -}}
{{- range $listener, $default := dict "frontend" (list "publish" 8080 8443) "management" (list "management" 8090 8453) -}}
{{- if has $listener $roles -}}
{{- $settings := index $config $listener -}}
{{- $name := index $default 0 -}}
{{- if not (dig "tls" "only" false $settings) -}}
{{- $_ := set $ports $name ($settings.port | default (index $default 1)) -}}
{{- end -}}
{{- if dig "tls" "certificate_file" "" $settings -}}
{{- $_ := set $ports (printf "%s-tls" $name) (dig "tls" "port" (index $default 2) $settings) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (has "frontend" $roles) -}}
{{- $_ := set $ports "status" (dig "status" "port" 8070 $config) -}}
{{- end -}}
{{- if dig "grpc" "enabled" false $config -}}
{{- $_ := set $ports "grpc" (dig "grpc" "port" 50051 $config) -}}
{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{/* The port with probes and metrics. Argument: a role's ports. */}}
{{- define "hermes.statusPort" -}}
{{- if hasKey . "status" }}status{{ else if hasKey . "publish" }}publish{{ else }}publish-tls{{ end -}}
{{- end -}}

{{/* Name and number of the Service's port for HTTP, as JSON. Arguments: root, role. */}}
{{- define "hermes.httpPort" -}}
{{- $ports := include "hermes.ports" (dict "root" .root "role" (include "hermes.component" .)) | fromJson -}}
{{- $plain := ternary "publish" "management" (eq .role "frontend") -}}
{{- if hasKey $ports $plain -}}
{{ dict "name" "http" "port" (index $ports $plain) | toJson }}
{{- else -}}
{{ dict "name" "https" "port" (index $ports (printf "%s-tls" $plain)) | toJson }}
{{- end -}}
{{- end -}}
