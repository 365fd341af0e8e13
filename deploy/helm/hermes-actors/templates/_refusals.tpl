{{/*
Refuses values that Kubernetes and the nodes would take, but that do not do what they say. Arguments:
root, role, config (the role's settings).
*/}}
{{- define "hermes.refusals" -}}
{{- $values := .root.Values -}}
{{- $config := .config -}}
{{- $dc := $values.dc -}}
{{- $clusters := dig "kafka" "clusters" dict $values.config -}}
{{- if and $values.standalone.enabled $clusters -}}
{{- fail "config.kafka.clusters: is unused with standalone.enabled; remove it, or set standalone.enabled=false to store messages in Kafka" -}}
{{- end -}}
{{- if not (or $values.standalone.enabled (hasKey $config.kafka.clusters $dc)) -}}
{{- fail (printf "config.kafka.clusters: has no cluster %s, which stores the messages of this datacentre; add config.kafka.clusters.%s.bootstrap_servers, or set standalone.enabled for a node without Kafka" $dc $dc) -}}
{{- end -}}
{{- range regexFindAll "/etc/hermes/secrets/[^/\"]+" (toJson $config) -1 -}}
{{- if not (hasKey $values.secrets (base .)) -}}
{{- fail (printf "config: names a file in %s, which is not mounted; add secrets.%s with the name of a Secret" . (base .)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $image := dict "image" $values.image "reconciliation.image" $values.reconciliation.image -}}
{{- if and $image.tag $image.digest -}}
{{- fail (printf "%s: has a tag and a digest, and the digest alone would count; remove one of %s.tag and %s.digest" $name $name $name) -}}
{{- end -}}
{{- end -}}
{{- range $role := list "frontend" "consumers" -}}
{{- $own := index $values $role -}}
{{- $least := max $own.replicas $own.autoscaling.minReplicas -}}
{{- if and $own.autoscaling.enabled (lt (int64 $own.autoscaling.maxReplicas) $least) -}}
{{- fail (printf "%s.autoscaling.maxReplicas: %v is less than %s.replicas or %s.autoscaling.minReplicas; use %d or more" $role $own.autoscaling.maxReplicas $role $role $least) -}}
{{- end -}}
{{- end -}}
{{- $diskBytesMax := float64 (dig "spool" "disk_bytes_max" 1073741824 $config) -}}
{{- if and (eq .role "frontend") $values.spool.enabled (le (include "hermes.bytes" $values.spool.size | float64) $diskBytesMax) -}}
{{- fail (printf "spool.size: %v cannot hold config.spool.disk_bytes_max, %.0f bytes, and the file system; enlarge it, or lower that setting" $values.spool.size $diskBytesMax) -}}
{{- end -}}
{{- range $listener := list "frontend" "management" -}}
{{- if has $listener $config.roles -}}
{{- $given := index (include "hermes.given" $ | fromJson) $listener -}}
{{- $tls := $given.tls | default dict -}}
{{- $asks := has $tls.client_auth (list "requested" "required") -}}
{{- if and (or $tls.only $asks) (not (index $values.tls $listener).enabled) -}}
{{- fail (printf "config.%s.tls: has no effect without a certificate; set tls.%s.enabled" $listener $listener) -}}
{{- end -}}
{{- if and (eq $listener "frontend") $tls.only (eq $tls.client_auth "required") -}}
{{- fail "config.frontend.tls.client_auth: with `only`, `required` would close the connections of the probes; use requested" -}}
{{- end -}}
{{- $security := $config.security | default dict -}}
{{- $byHeader := or $security.users_file $security.plugins (dig "jwt" "jwks_file" "" $security) (dig "jwt" "jwks_url" "" $security) -}}
{{- $byCertificate := and $asks (dig "certificates" "enabled" false $security) -}}
{{- if and (dig "authentication" "enabled" false $given) (not (or $byHeader $byCertificate)) -}}
{{- fail (printf "config.%s.authentication.enabled: nobody could log in; set config.security.users_file, config.security.jwt.jwks_file or jwks_url, or config.security.certificates.enabled and config.%s.tls.client_auth" $listener $listener) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes in bytes. */}}
{{- define "hermes.bytes" -}}
{{- $unit := regexFind "[a-zA-Z]+$" (toString .) -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (toString . | trimSuffix $unit | float64) (get $units $unit | default 1e15) -}}
{{- end -}}
