{{- define "hermes.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
The release's name, with `hermes` in it. At most 40 characters, so that names with a role and an
ordinal stay below 63.
*/}}
{{- define "hermes.fullname" -}}
{{- $name := .Values.nameOverride | default "hermes" -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of every object; with a role: of that role's. Arguments: root, role. */}}
{{- define "hermes.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "hermes.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hermes.selector" -}}
app.kubernetes.io/name: {{ include "hermes.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* The component whose pods have a role: a standalone node has all. Arguments: root, role. */}}
{{- define "hermes.component" -}}
{{- if .root.Values.standalone.enabled }}frontend{{ else }}{{ .role }}{{ end -}}
{{- end -}}

{{- define "hermes.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "hermes.serviceAccountName" -}}
{{- $default := ternary (include "hermes.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $default -}}
{{- end -}}

{{/* The names of a role's Service, one a line. Arguments: root, role. */}}
{{- define "hermes.serviceNames" -}}
{{- $name := printf "%s-%s" (include "hermes.fullname" .root) .role -}}
{{- $namespace := .root.Release.Namespace -}}
{{ $name }}
{{ $name }}.{{ $namespace }}
{{ $name }}.{{ $namespace }}.svc
{{ $name }}.{{ $namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{/* The host names by which clients outside of the cluster reach a role. Arguments: root, role. */}}
{{- define "hermes.publicNames" -}}
{{- $ingress := index .root.Values.ingress .role -}}
{{- $route := index .root.Values.gateway .role -}}
{{- $grpc := .root.Values.gateway.grpc -}}
{{- $names := list -}}
{{- if $ingress.enabled }}{{ $names = concat $names $ingress.hosts }}{{ end -}}
{{- if $route.enabled }}{{ $names = concat $names $route.hostnames }}{{ end -}}
{{- if $grpc.enabled }}{{ $names = concat $names $grpc.hostnames }}{{ end -}}
{{- $names | uniq | join "\n" -}}
{{- end -}}

{{- define "hermes.tlsSecretName" -}}
{{- $given := index .root.Values.tls .role -}}
{{- if $given.secretName -}}
{{ $given.secretName }}
{{- else if .root.Values.tls.certManager.enabled -}}
{{ include "hermes.fullname" .root }}-{{ .role }}-tls
{{- else -}}
{{- fail (printf "tls.%s.enabled: needs a certificate; set tls.%s.secretName, or tls.certManager.enabled" .role .role) -}}
{{- end -}}
{{- end -}}
