{{/*
The configuration of a role's nodes, as TOML: `config`, overridden by the role's own, and what the
chart knows itself. Arguments: root, role.
*/}}
{{- define "hermes.config" -}}
{{- $values := .root.Values -}}
{{- $config := include "hermes.settings" . | fromJson -}}
{{- $dc := $values.dc -}}
{{- if and (not $values.standalone.enabled) (not (hasKey $config.kafka.clusters $dc)) -}}
{{- fail (printf "config.kafka.clusters: has no cluster %s, which stores the messages of this datacentre; add config.kafka.clusters.%s.bootstrap_servers, or set standalone.enabled for a node without Kafka" $dc $dc) -}}
{{- end -}}
{{- range regexFindAll "/etc/hermes/secrets/[^/\"]+" (toJson $config) -1 -}}
{{- if not (hasKey $values.secrets (base .)) -}}
{{- fail (printf "config: names a file in %s, which is not mounted; add secrets.%s with the name of a Secret" . (base .)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .role "frontend") (dig "tls" "only" false $config.frontend) (eq (dig "tls" "client_auth" "" $config.frontend) "required") -}}
{{- fail "config.frontend.tls.client_auth: with `only`, `required` would close the connections of the probes; use requested" -}}
{{- end -}}
{{- $_ := include "hermes.withWholeNumbers" $config -}}
{{- toToml $config -}}
{{- end -}}

{{/* The same as JSON. */}}
{{- define "hermes.settings" -}}
{{- $values := .root.Values -}}
{{- $role := .role -}}
{{- $roles := ternary (list "frontend" "consumers" "management") (list $role) $values.standalone.enabled -}}
{{- $config := deepCopy $values.config -}}
{{- range $roles -}}
{{- $config = mustMergeOverwrite $config (deepCopy (index $values .).config) -}}
{{- end -}}
{{- $added := dict "dc" $values.dc "roles" $roles -}}
{{- $grpc := dict -}}
{{- range $listener := list "management" "frontend" -}}
{{- if not (and (has $listener $roles) (index $values.tls $listener).enabled) -}}
{{- $_ := set $config $listener (omit (index $config $listener) "tls") -}}
{{- else -}}
{{- $folder := printf "/etc/hermes/tls/%s" $listener -}}
{{- $files := dict "certificate_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) -}}
{{- $_ := set $added $listener (dict "tls" $files) -}}
{{- $grpc = dict "tls" (deepCopy $files) -}}
{{- end -}}
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
