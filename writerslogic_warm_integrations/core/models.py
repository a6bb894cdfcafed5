from warm_integrations.core.models import *
